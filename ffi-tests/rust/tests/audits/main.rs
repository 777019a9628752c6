//! Programs by which readers of this library broke it. Each failed, hung or crashed before its error was mended.

mod first;
mod second;
mod third;
