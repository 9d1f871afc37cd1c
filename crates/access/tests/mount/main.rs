//! Repositories mounted for real, and what the kernel shows of them.

#[cfg(test)]
mod compare;
#[cfg(test)]
mod fixture;
#[cfg(test)]
mod sample;

#[cfg(test)]
mod contents;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod snapshots;
#[cfg(test)]
mod trees;
