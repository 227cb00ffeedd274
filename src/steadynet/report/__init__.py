"""What runs and experiments found, for people to look at: tables, claims, figures and one page."""
