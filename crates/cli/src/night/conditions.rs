//! What a machine should be like for a run: on mains, on a line that costs nothing, and awake.

use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Where the kernel shows batteries and mains.
const SUPPLIES: &str = "/sys/class/power_supply";

/// Whether the machine runs on a battery.
pub fn is_on_battery() -> bool {
    is_on_battery_in(Path::new(SUPPLIES))
}

fn is_on_battery_in(supplies: &Path) -> bool {
    let said = |supply: &Path, what: &str| {
        std::fs::read_to_string(supply.join(what)).unwrap_or_default().trim().to_owned()
    };
    let (mut has_mains, mut discharges) = (false, false);
    for supply in std::fs::read_dir(supplies).into_iter().flatten().flatten() {
        let supply = supply.path();
        match said(&supply, "type").as_str() {
            "Battery" if said(&supply, "scope") != "Device" => {
                discharges |= said(&supply, "status") == "Discharging";
            }
            "Mains" | "USB" => has_mains |= said(&supply, "online") == "1",
            _ => {}
        }
    }
    discharges && !has_mains
}

/// Whether the line to the network costs by the byte, as NetworkManager knows or guesses.
pub fn is_metered() -> bool {
    const SERVICE: &str = "org.freedesktop.NetworkManager";
    let mut command = Command::new("busctl");
    command.args(["--system", "--timeout=5", "get-property", SERVICE]);
    command.args(["/org/freedesktop/NetworkManager", SERVICE, "Metered"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
    output.is_ok_and(|output| means_metered(&String::from_utf8_lossy(&output.stdout)))
}

/// `u 1` is yes, `u 3` a guess of yes.
fn means_metered(property: &str) -> bool {
    matches!(property.trim(), "u 1" | "u 3")
}

/// While it lives, the machine does not go to sleep by itself, if that can be asked for.
pub struct Awake {
    holder: Option<Child>,
}

impl Awake {
    /// Asks for it. The one who holds it ends when its input does, so also if we die.
    pub fn begin(why: &str) -> Self {
        let mut command = Command::new("systemd-inhibit");
        command.args(["--what=sleep:idle", "--mode=block", "--who=strongroom"]);
        command.arg(format!("--why={why}")).arg("cat");
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { holder: command.spawn().ok() }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Some(mut holder) = self.holder.take() {
            drop(holder.stdin.take());
            let _ = holder.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_on_battery_if_nothing_feeds_it() {
        let folder = tempfile::tempdir().unwrap();
        let supply = |name: &str, what: &[(&str, &str)]| {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
            for (file, text) in what {
                std::fs::write(folder.path().join(name).join(file), format!("{text}\n")).unwrap();
            }
        };
        let is_on_battery = || is_on_battery_in(folder.path());
        assert!(!is_on_battery());
        supply("mouse", &[("type", "Battery"), ("scope", "Device"), ("status", "Discharging")]);
        assert!(!is_on_battery());
        supply("BAT0", &[("type", "Battery"), ("status", "Discharging")]);
        assert!(is_on_battery());
        supply("AC", &[("type", "Mains"), ("online", "0")]);
        assert!(is_on_battery());
        supply("AC", &[("online", "1")]);
        assert!(!is_on_battery());
        assert!(!is_on_battery_in(Path::new("/nowhere")));
    }

    #[test]
    fn a_line_is_metered_if_it_is_known_or_guessed() {
        for (property, metered) in
            [("u 1\n", true), ("u 3", true), ("u 2", false), ("u 0", false), ("", false)]
        {
            assert_eq!(means_metered(property), metered, "{property}");
        }
    }
}
