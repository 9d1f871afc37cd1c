//! The disk of the synthetic nights: which content each block has, and where files get room.

/// Content of a block that is free.
const FREE: u32 = 0;
/// Content of a block of zeros that belongs to a file.
const EMPTY: u32 = 1;
/// Blocks of a group: files of a user begin in the same one, and go to the next if it is full.
const GROUP_BLOCKS: u32 = 4_096;

/// Neighbouring blocks of a file.
#[derive(Debug, Clone, Copy)]
pub struct Extent {
    /// The first one.
    pub start: u32,
    /// How many.
    pub length: u32,
}

/// A file: where its blocks are.
#[derive(Debug, Default)]
pub struct File {
    extents: Vec<Extent>,
    blocks: u32,
}

impl File {
    /// How many blocks it has.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Where they are, in the order of the file.
    pub fn addresses(&self) -> impl Iterator<Item = u32> {
        self.extents.iter().flat_map(|extent| extent.start..extent.start + extent.length)
    }

    fn push(&mut self, address: u32) {
        self.blocks += 1;
        match self.extents.last_mut() {
            Some(last) if last.start + last.length == address => last.length += 1,
            _ => self.extents.push(Extent { start: address, length: 1 }),
        }
    }
}

/// The disk.
pub struct Volume {
    /// By address.
    contents: Vec<u32>,
    used: u64,
    /// The content that no block has had so far.
    fresh: u32,
    /// Blocks written since last night, and what was in them then.
    changed: Vec<(u32, u32)>,
    is_changed: Vec<bool>,
    /// Where the next block of each owner is looked for.
    cursors: Vec<u32>,
}

impl Volume {
    /// An empty disk, shared by a number of owners.
    pub fn new(blocks: u32, owners: u32) -> Self {
        // Owners begin apart, as a file system spreads directories.
        let cursors = (0..owners).map(|owner| blocks / owners * owner).collect();
        Self {
            contents: vec![FREE; blocks as usize],
            used: 0,
            fresh: EMPTY + 1,
            changed: Vec::new(),
            is_changed: vec![false; blocks as usize],
            cursors,
        }
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Contents of all blocks in use, by address.
    pub fn image(&self) -> Vec<u32> {
        self.contents.iter().copied().filter(|content| *content != FREE).map(number).collect()
    }

    /// Contents of the blocks that changed since this was asked last, by address. What is free
    /// counts as unchanged.
    pub fn take_changed(&mut self) -> Vec<u32> {
        let mut changed = std::mem::take(&mut self.changed);
        changed.sort_unstable();
        for (address, _) in &changed {
            self.is_changed[*address as usize] = false;
        }
        let now = |(address, before): (u32, u32)| {
            let content = self.contents[address as usize];
            (content != before && content != FREE).then(|| number(content))
        };
        changed.into_iter().filter_map(now).collect()
    }

    /// A file of blocks with new contents.
    pub fn create(&mut self, owner: usize, blocks: u32) -> File {
        let mut file = File::default();
        self.append(owner, &mut file, blocks);
        file
    }

    /// A file of these contents.
    pub fn create_from(&mut self, owner: usize, contents: &[u32]) -> File {
        let mut file = File::default();
        for content in contents {
            let Some(address) = self.allocate(owner) else { break };
            self.set(address, *content);
            file.push(address);
        }
        file
    }

    /// Adds blocks with new contents to the end of a file.
    pub fn append(&mut self, owner: usize, file: &mut File, blocks: u32) {
        for _ in 0..blocks {
            let Some(address) = self.allocate(owner) else { break };
            self.renew(address);
            file.push(address);
        }
    }

    /// Adds blocks of zeros to the end of a file.
    pub fn append_empty(&mut self, owner: usize, file: &mut File, blocks: u32) {
        for _ in 0..blocks {
            let Some(address) = self.allocate(owner) else { break };
            self.set(address, EMPTY);
            file.push(address);
        }
    }

    /// Gives a block new contents.
    pub fn renew(&mut self, address: u32) {
        let content = self.fresh;
        self.fresh += 1;
        self.set(address, content);
    }

    /// The contents of a file.
    pub fn contents(&self, file: &File) -> Vec<u32> {
        file.addresses().map(|address| self.contents[address as usize]).collect()
    }

    /// Deletes a file. Its blocks are free, and nothing is written to them.
    pub fn remove(&mut self, file: &File) {
        for address in file.addresses() {
            self.note(address);
            self.used -= u64::from(self.contents[address as usize] != FREE);
            self.contents[address as usize] = FREE;
        }
    }

    /// The next free block at or after the owner's cursor; at the end of a group that is nearly
    /// full, the search goes on in the next group that is not.
    fn allocate(&mut self, owner: usize) -> Option<u32> {
        let blocks = self.contents.len() as u32;
        let start = self.cursors[owner];
        let place = (0..blocks)
            .map(|step| (start + step) % blocks)
            .find(|address| self.contents[*address as usize] == FREE)?;
        self.cursors[owner] = (place + 1) % blocks;
        Some(place)
    }

    /// Moves an owner to another group: the next file begins there.
    pub fn move_on(&mut self, owner: usize, number: u64) {
        let groups = (self.contents.len() as u32).div_ceil(GROUP_BLOCKS);
        self.cursors[owner] = (number % u64::from(groups)) as u32 * GROUP_BLOCKS;
    }

    fn set(&mut self, address: u32, content: u32) {
        self.note(address);
        self.used += u64::from(self.contents[address as usize] == FREE);
        self.contents[address as usize] = content;
    }

    fn note(&mut self, address: u32) {
        if !std::mem::replace(&mut self.is_changed[address as usize], true) {
            self.changed.push((address, self.contents[address as usize]));
        }
    }
}

/// Contents count from one, because zero is a free block; outside, they count from zero.
fn number(content: u32) -> u32 {
    content - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_has_changed() {
        let mut volume = Volume::new(100, 2);
        let file = volume.create(1, 3);
        assert_eq!(file.addresses().collect::<Vec<u32>>(), [50, 51, 52]);
        assert_eq!(volume.take_changed(), [1, 2, 3]);
        volume.renew(51);
        let copy = volume.create_from(0, &volume.contents(&file));
        assert_eq!(copy.addresses().next(), Some(0));
        // In the order of the disk: the copy is before what it is a copy of.
        assert_eq!(volume.take_changed(), [1, 4, 3, 4]);
        let contents = volume.contents(&file);
        volume.remove(&file);
        volume.cursors[1] = 50;
        let again = volume.create_from(1, &contents);
        assert_eq!(volume.contents(&again), contents);
        assert_eq!((volume.take_changed().len(), volume.used()), (0, 6));
        volume.remove(&copy);
        assert_eq!((volume.take_changed().len(), volume.used()), (0, 3));
        assert_eq!(volume.image(), [1, 4, 3]);
    }

    #[test]
    fn a_full_disk_gives_what_is_left() {
        let mut volume = Volume::new(10, 1);
        assert_eq!(volume.create(0, 8).blocks(), 8);
        assert_eq!(volume.create(0, 8).blocks(), 2);
        assert_eq!((volume.create(0, 1).blocks(), volume.used()), (0, 10));
    }
}
