//! What calls every test, from outside: the scripts behind `make`, and the program that they end in.
#![allow(clippy::unwrap_used)]

mod cache;
mod checkout;
mod phases;
mod program;
mod quick;
mod scripts;
mod stage;
