//! For tests: faulty and recording backends, generators of trees, a reference model.
