"""A trained model as an HTTP service: questions in JSON, answers in JSON, and a page to try texts in."""
