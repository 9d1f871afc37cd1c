//! Damage and loss of stored objects, of the cache and of a machine's memory, by no verb; and copies that are put
//! there by hand.

use std::fs;

use strongroom_backend::{Backend, ObjectName};
use strongroom_testkit::Change;
use strongroom_testkit::damage::{Objects, names_in};

use super::Model;
use crate::damage::{is_within_parity, wipe_front};

impl Model {
    /// An object is stored again under the name of a copy, as a person or a program might do.
    pub fn plant_copy(&mut self) {
        let objects = self.world.objects.snapshot();
        let names: Vec<ObjectName> = names_in(&objects, "arenas")
            .into_iter()
            .chain(names_in(&objects, "snapshots"))
            .filter(|name| !name.file().ends_with(".copy"))
            .collect();
        if names.is_empty() {
            return;
        }
        let name = self.random.pick(&names).clone();
        let copy = ObjectName::new(name.folder(), format!("{}.copy", name.file()));
        if self.world.objects.create(&copy, &objects[&name]).is_ok() {
            self.note(format!("plant {copy}"));
            self.planted.insert(copy);
        }
    }

    /// Damages an object, within parity or beyond.
    pub fn damage(&mut self, within_parity: bool) {
        if self.collects && !within_parity {
            return;
        }
        let before = self.world.objects.snapshot();
        let folder = *self.random.pick(&["arenas", "arenas", "arenas", "snapshots", "keys", ""]);
        let mut names = names_in(&before, folder);
        names.retain(|name| !self.planted.contains(name));
        let has_copies = matches!(folder, "keys" | "");
        if names.is_empty() || (has_copies && !self.ledger.copies_are_whole()) {
            return;
        }
        let name = self.random.pick(&names).clone();
        let change = match self.random.below(13) {
            // An arena's summary, and no block.
            0 => Change::Scratch(20, 2000),
            _ => *self.random.pick(&Change::ALL),
        };
        let fits = is_within_parity(change) && self.ledger.is_whole(&name);
        if !has_copies && fits != within_parity {
            return;
        }
        let mut after = before.clone();
        if change.on_object(&mut after, &name) {
            self.note(format!("damage {name}: {change:?}"));
            self.put(&before, &after);
            for name in changed(&before, &after) {
                self.ledger.damage(&name, is_within_parity(change));
            }
        }
    }

    /// The front of an arena is damaged beyond parity, and its blocks are not.
    pub fn lose_a_summary(&mut self) {
        let before = self.world.objects.snapshot();
        let mut names = names_in(&before, "arenas");
        names.retain(|name| !self.planted.contains(name) && !self.claimed.contains(name));
        if self.collects || names.is_empty() {
            return;
        }
        let name = self.random.pick(&names).clone();
        let mut after = before.clone();
        if wipe_front(after.get_mut(&name).expect("it was listed")) {
            self.note(format!("the front of {name} is wiped"));
            self.put(&before, &after);
            self.ledger.damage(&name, false);
        }
    }

    /// Makes the stored objects those of `after`.
    fn put(&self, before: &Objects, after: &Objects) {
        for name in changed(before, after) {
            if before.contains_key(&name) {
                self.world.objects.remove(&name).unwrap();
            }
            if let Some(bytes) = after.get(&name) {
                self.world.objects.create(&name, bytes).unwrap();
            }
        }
    }

    /// The cache is lost, or one is begun.
    pub fn toggle_cache(&mut self) {
        let folder = self.world.folder.path().join("cache");
        self.world.cache = match self.world.cache.take() {
            None => Some(folder),
            Some(_) => None,
        };
        if self.random.once_in(2) {
            let _ = fs::remove_dir_all(self.world.folder.path().join("cache"));
        }
        self.note(format!("cache: {}", self.world.cache.is_some()));
    }

    /// Damages what this machine remembers of its backups.
    pub fn damage_record(&mut self) {
        let Ok(caches) = fs::read_dir(self.world.folder.path().join("cache")) else { return };
        for cache in caches {
            let file = cache.unwrap().path().join("own");
            let Ok(mut bytes) = fs::read(&file) else { continue };
            let place = self.random.below(bytes.len() as u64) as usize;
            bytes[place] ^= 1;
            fs::write(&file, bytes).unwrap();
            self.note(format!("damage the own record at {place}"));
        }
    }
}

/// The names of objects that are not the same in both.
fn changed(before: &Objects, after: &Objects) -> Vec<ObjectName> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}
