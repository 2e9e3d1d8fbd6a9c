//! MutatingAdmissionPolicy.
