//! Copies: the engine, pieces, readers and writers.

mod copies;
mod io;
mod links;
mod pieces;
