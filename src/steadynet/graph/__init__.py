"""Networks as graphs: any network becomes a list of a few kinds of operation, for which bounds are known."""
