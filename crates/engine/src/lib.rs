//! The repository, and one file per verb; synchronous.
