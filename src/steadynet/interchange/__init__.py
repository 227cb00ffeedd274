"""Files that other tools read and write: ONNX networks and VNN-LIB properties."""
