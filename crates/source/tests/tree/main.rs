//! Trees of this machine, read by the source and put back by the target.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod copy;

#[cfg(test)]
mod concurrent;
#[cfg(test)]
mod deep;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod leases;
#[cfg(test)]
mod mounts;
#[cfg(test)]
mod random;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod target;
#[cfg(test)]
mod unions;
#[cfg(test)]
mod untouched;
