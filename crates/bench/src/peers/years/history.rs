//! Storing the versions, once, by each program in turn.

use std::path::Path;

use super::{Contender, label};
use crate::peers::data::DataSet;
use crate::peers::measure::{Usage, measure};
use crate::say;
use crate::shell::{Done, count_files, make_folder, remove, run};

/// Stores all versions with those that do not have them yet, and keeps a copy of the second.
pub fn build(set: &mut dyn DataSet, contenders: &mut [Contender], truth: &Path) -> Done {
    let mut new: Vec<&mut Contender> =
        contenders.iter_mut().filter(|contender| !contender.kept.is_dir()).collect();
    if new.is_empty() {
        return Ok(());
    }
    for contender in &mut new {
        begin(contender)?;
    }
    for version in 1..=set.versions() {
        set.put_version(version)?;
        if version == 2 {
            copy(set.at(), truth)?;
        }
        for contender in &mut new {
            if contender.results.failed.is_none()
                && let Err(failure) = back_up(contender, set.at(), version)
            {
                contender.fail("backup", &failure);
            }
        }
    }
    let (files, bytes) = count_files(set.at())?;
    for contender in &mut new {
        if contender.results.failed.is_none() {
            contender.results.stored = count_files(&contender.place.repository())?.1;
            copy(&contender.place.home, &contender.kept)?;
        }
        let results = &mut contender.results;
        (results.files, results.bytes, results.about) = (files, bytes, set.about());
        contender.save()?;
    }
    Ok(())
}

/// Makes a folder what another is, with all that it has.
pub fn copy(source: &Path, target: &Path) -> Done {
    remove(target)?;
    if let Some(folder) = target.parent() {
        make_folder(folder)?;
    }
    run("cp", ["-a".as_ref(), source.as_os_str(), target.as_os_str()]).map(drop)
}

fn begin(contender: &mut Contender) -> Done {
    let (tool, version) = (contender.results.tool.clone(), contender.results.version.clone());
    contender.results = super::Results { tool, version, ..super::Results::default() };
    remove(&contender.place.home)?;
    make_folder(&contender.place.cache())?;
    contender.tool.init(&contender.place).iter().try_for_each(|call| call.run().map(drop))
}

fn back_up(contender: &mut Contender, at: &Path, version: u32) -> Done {
    let call = contender.tool.backup(&contender.place, at, &label(version));
    let usage: Usage = measure(&call, &contender.place.home.join("said"))?;
    contender.results.backups += usage;
    let stored = count_files(&contender.place.repository())?.1;
    say(&format!(
        "  {:12} {:6} {:8.2} s {:8.2} s CPU, {:.1} MB stored",
        contender.tool.name(),
        label(version),
        usage.wall,
        usage.cpu,
        stored as f64 / 1e6
    ));
    Ok(())
}
