"""VNN-LIB properties, read and written."""
