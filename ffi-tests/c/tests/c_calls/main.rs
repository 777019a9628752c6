//! The C library, called as a program in C calls it.

mod cases;
mod ends;
mod random;
mod views;
mod waits;
