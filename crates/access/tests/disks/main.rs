//! Nights as disks, judged by the tools of NBD and QEMU.

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod nights;
#[cfg(test)]
mod overlays;
#[cfg(test)]
mod possession;
