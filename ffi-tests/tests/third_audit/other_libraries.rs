//! Memory, streams and captures that are shared with other libraries.
