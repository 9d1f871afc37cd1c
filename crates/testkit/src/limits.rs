//! Small limits from a seed: a few kilobytes then take the shapes that only large data has.

use strongroom_base::SizeLimits;

use crate::random::Random;

/// Some limits, each small or that of the program.
pub fn draw_limits(random: &mut Random) -> SizeLimits {
    SizeLimits::from_seed(random.number())
}
