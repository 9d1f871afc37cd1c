//! File trees as they stand on this machine: walked, read, and put back.
