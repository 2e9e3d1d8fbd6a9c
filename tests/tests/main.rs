//! The whole system as a user sees it, and the house rules. One program for all of them: linking costs more than running.

mod aggregated;
mod backup;
mod campaign;
mod chart;
mod configuration;
mod copies;
mod crashes;
mod encryption;
mod failures;
mod house;
mod image;
mod leftovers;
mod looks;
mod nodes;
mod operations;
mod recover;
mod steps;
mod store;
mod story;
