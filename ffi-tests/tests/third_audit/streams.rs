//! Which stream is meant: handles of several contexts, streams of others that end, forked children, names.
