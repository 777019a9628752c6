//! Programs by which readers of this library broke it. Each failed, hung or crashed before its error was mended.

mod first;
mod reports;
mod second;
mod third;
