//! Whole experiments on small fleets.
