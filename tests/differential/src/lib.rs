//! Our kinds as a kube-apiserver can serve them, for whoever compares the two: the differential tests and the benches.

pub mod definition;
