//! Copies: the engine, pieces, readers and writers.

mod copies;
mod files;
mod io;
mod links;
mod pieces;
