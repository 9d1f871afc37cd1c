//! A description as JSON.

use serde::Deserialize;

use super::{DESCRIPTION_BYTES_MAX, Description, DescriptionError, Firmware, FirmwareFile};

/// The version that is written.
const VERSION: u32 = 1;

/// What is read first.
#[derive(Deserialize)]
struct Head {
    version: u32,
}

impl Description {
    /// A description in which nothing is known yet.
    pub fn new() -> Self {
        Self { version: VERSION, ..Self::default() }
    }

    /// The files of its firmware, which are stored under their names beside the description.
    pub fn files(&self) -> Vec<&FirmwareFile> {
        let firmware: Vec<&FirmwareFile> = match &self.firmware {
            Firmware::Bios { file } => file.iter().collect(),
            Firmware::Uefi { code, variables } => [code].into_iter().chain(variables).collect(),
        };
        let of_tpm = self.tpm.iter().flat_map(|tpm| &tpm.state);
        firmware.into_iter().chain(of_tpm).collect()
    }

    /// As it is stored: JSON on several lines.
    pub fn to_json(&self) -> Vec<u8> {
        // Maps have strings as keys, and there are no numbers that JSON lacks.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// Reads what was stored.
    ///
    /// # Errors
    ///
    /// It is of a newer version, or damaged.
    pub fn from_json(json: &[u8]) -> Result<Self, DescriptionError> {
        if json.len() as u64 > DESCRIPTION_BYTES_MAX {
            return Err(DescriptionError::TooLong);
        }
        let head: Head = serde_json::from_slice(json)?;
        if head.version != VERSION {
            return Err(DescriptionError::Version(head.version));
        }
        Ok(serde_json::from_slice(json)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let arguments = "-machine q35 -m 2G -drive file=a.qcow2,if=virtio -nic user,model=e1000";
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        let description = Description::from_arguments(&arguments);
        assert_eq!(Description::from_json(&description.to_json()).unwrap(), description);
        let least = Description::from_json(br#"{"version":1,"later":[1]}"#).unwrap();
        assert_eq!(least, Description::new());
        let disk = br#"{"version":1,"disks":[{"name":"a","device":"b","bus":"later"}]}"#;
        let bus = Description::from_json(disk).unwrap().disks[0].bus;
        assert_eq!(bus, crate::DiskBus::Other, "a bus of a later version");
    }

    #[test]
    fn what_is_no_description_is_refused() {
        let newer = Description::from_json(br#"{"version":2,"cpu":"other"}"#);
        assert!(matches!(newer, Err(DescriptionError::Version(2))));
        for bad in [&b""[..], b"[]", b"{}", b"{\"version\":1,\"disks\":3}", b"\xff"] {
            assert!(matches!(Description::from_json(bad), Err(DescriptionError::Json(_))));
        }
        let long = vec![b' '; DESCRIPTION_BYTES_MAX as usize + 1];
        assert!(matches!(Description::from_json(&long), Err(DescriptionError::TooLong)));
        let deep = vec![b'['; 100_000];
        assert!(Description::from_json(&deep).is_err());
    }
}
