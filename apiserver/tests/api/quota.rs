//! ResourceQuota for counts of objects.
