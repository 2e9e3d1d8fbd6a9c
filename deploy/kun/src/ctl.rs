//! `kun ctl`: what a person does to an installation that the API itself cannot do, because it has forgotten something.

pub mod recover;
