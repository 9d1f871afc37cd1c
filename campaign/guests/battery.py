"""A battery for a guest: the kernel's own driver for smart batteries, and a chip that is only registers.

Debian's kernel has no module `test_power`, but it has a bus without hardware (`i2c-stub`)."""

# Writes words into the registers of the chip, as `i2cset` does.
SET = """
import ctypes, fcntl, glob, os, sys
class Request(ctypes.Structure):
    _fields_ = [("is_read", ctypes.c_uint8), ("register", ctypes.c_uint8), ("kind", ctypes.c_uint32),
                ("data", ctypes.c_void_p)]
I2C_SLAVE_FORCE, I2C_SMBUS, WORD = 0x0706, 0x0720, 3
[bus] = [path for path in glob.glob("/sys/class/i2c-adapter/i2c-*") if "stub" in open(path + "/name").read()]
device = os.open("/dev/" + os.path.basename(bus), os.O_RDWR)
fcntl.ioctl(device, I2C_SLAVE_FORCE, 0x0b)
for pair in sys.argv[1:]:
    register, value = (int(part, 0) for part in pair.split("="))
    word = ctypes.c_uint16(value)
    fcntl.ioctl(device, I2C_SMBUS, Request(0, register, WORD, ctypes.addressof(word)))
print(bus)
"""
# Status (0x16), current in mA (0x0a), charge in percent (0x0d) of the Smart Battery Data Specification.
DISCHARGES = "0x16=0x40 0x0a=0xff00 0x0d=50"
CHARGES = "0x16=0 0x0a=0x100 0x0d=50"


def install(guest):
    """Puts one in; it discharges."""
    guest.write("/srv/battery.py", SET)
    guest.check("modprobe i2c-dev && modprobe i2c-stub chip_addr=0x0b && modprobe sbs-battery")
    bus = guest.check(f"python3 /srv/battery.py {DISCHARGES}").strip()
    guest.check(f"echo sbs-battery 0x0b > {bus}/new_device")
    wait_until(guest, "Discharging")


def charge(guest):
    """Its charger is plugged in."""
    guest.check(f"python3 /srv/battery.py {CHARGES}")
    wait_until(guest, "Charging")


def wait_until(guest, status):
    guest.check(f"until grep -q '^{status}$' /sys/class/power_supply/*/status; do sleep 0.2; done", 30)
