"""A network as a graph of few kinds of operation, whoever wrote it and however."""
