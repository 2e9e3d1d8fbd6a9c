//! What calls every test, from outside: the scripts behind `make`, and the program that they end in.
#![allow(clippy::unwrap_used)]

mod phases;
mod program;
mod scripts;
mod stage;
