python make_reviews.py
crosstask rank first.yaml
crosstask train first.yaml
crosstask train second.yaml
crosstask evaluate runs/second
crosstask predict runs/second new.txt
crosstask export runs/second stars-model
