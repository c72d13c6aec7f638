"""Resolution of thousands of table locations on the driver."""
