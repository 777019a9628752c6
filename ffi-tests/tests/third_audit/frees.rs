//! Frees by calls that wait, and values that end beside captures.
