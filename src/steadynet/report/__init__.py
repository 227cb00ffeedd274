"""The report of runs and experiments: tables, the paper's claims, figures, and one page that shows everything."""
