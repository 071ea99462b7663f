"""From files to tasks: readers, examples, label sets, splits and metrics."""
