"""What the commands show: progress bars and tables in a terminal, plain lines in a file or a pipe."""
