//! Programs in C and C++, headers, packages and documents.

mod api;
mod cpp;
mod debian;
mod drop_in;
mod examples;
mod headers;
mod install;
mod interchange;
mod signal_header;
mod symbols;
mod users;
mod validation;
mod versions;
