//! Plans of machines that are resumed.
