"""Wrong passphrases, programs that die, damage: each is said, and none looks like a file."""

import io
import os
import signal
import subprocess
import sys
import textwrap

from support import PACKAGE, RepositoryCase, noise

from strongroom_fsspec import StrongroomError


class BadDays(RepositoryCase):
    def test_a_wrong_passphrase_is_said(self):
        self.fs.pipe_file("f", b"x")
        os.environ["STRONGROOM_PASSWORD"] = "wrong"
        fs = self.new_fs()
        for act in [fs.exists, fs.find, fs.glob, fs.isdir, fs.cat_file, lambda path: fs.pipe_file(path, b"y")]:
            with self.assertRaises(StrongroomError) as failed:
                act("f")
            self.assertEqual(failed.exception.exit_code, 5)
        # Options count more than the environment.
        (self.folder / "password").write_text(f"strongroom-key-{'5a' * 32}4f56ba95\n")
        fs = self.new_fs(password_file=self.folder / "password")
        self.assertEqual(fs.cat_file("f"), b"x")
        fs = self.new_fs(password_command=f"cat {self.folder}/password")
        self.assertEqual(fs.cat_file("f"), b"x")

    def test_no_repository_is_said(self):
        fs = self.new_fs(repository=self.folder / "nothing")
        self.assertRaisesRegex(StrongroomError, "strongroom init", fs.exists, "f")
        self.assertRaisesRegex(StrongroomError, "strongroom init", fs.pipe_file, "f", b"x")

    def test_no_program_is_said(self):
        os.environ["PATH"] = "/nowhere"
        self.assertRaisesRegex(StrongroomError, "cannot run the program strongroom", self.fs.exists, "f")
        self.assertRaisesRegex(StrongroomError, "install it", self.fs.pipe_file, "f", b"x")
        program = self.program_folder() / "strongroom"
        self.assertFalse(self.new_fs(program=program).exists("f"))

    def test_a_writer_that_is_killed_leaves_no_file(self):
        script = textwrap.dedent("""
            import signal, time
            from support import StrongroomFileSystem
            # What runs in the background of a shell ignores it.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            with StrongroomFileSystem().open("d/killed", "wb") as file:
                file.write(bytes(3_000_000))
                print("written", flush=True)
                time.sleep(600)
        """)
        python = [sys.executable, "-c", script]
        environment = dict(os.environ, PYTHONPATH=str(PACKAGE / "tests"))
        for number in [signal.SIGKILL, signal.SIGTERM, signal.SIGINT]:
            child = subprocess.Popen(
                python, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            self.assertEqual(child.stdout.readline(), b"written\n")
            child.send_signal(number)
            child.wait()
            child.stdout.close()
        # The program ends by itself, and has stored what the next writer need not store again.
        self.fs.pipe_file("d/next", bytes(3_000_000))
        self.assertEqual(self.new_fs().find(""), ["d/next"])
        self.assertEqual(self.snapshots(), 1)

    def test_a_program_that_dies_is_said(self):
        file = self.fs.open("f", "wb")
        file._upload._child.kill()

        def go_on():
            for _ in range(100):
                file.write(bytes(1 << 20))
            file.close()

        self.assertRaises(StrongroomError, go_on)
        self.assertRaises(StrongroomError, file.close)
        self.assertFalse(self.new_fs().exists("f"))

    def test_damage_is_said(self):
        content = noise(3, 40 << 20)
        self.fs.pipe({"small": b"x" * 1000, "large": content})
        for path in (self.repository() / "arenas").rglob("*"):
            if path.is_file():
                path.unlink()
        os.environ["STRONGROOM_CACHE"] = str(self.folder / "other cache")
        fs = self.new_fs()
        self.assertEqual(fs.size("large"), len(content))
        for read in [fs.cat_file, lambda path: fs.open(path).read(), lambda path: fs.get_file(path, io.BytesIO())]:
            for path in ["small", "large"]:
                with self.assertRaises(StrongroomError) as failed:
                    read(path)
                self.assertEqual(failed.exception.exit_code, 4)

    def test_fsspec_finds_the_package(self):
        """The entry point, as the installed package has it."""
        import tomllib

        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
        points = project["entry-points"]["fsspec.specs"].items()
        info = self.folder / f"site/strongroom_fsspec-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        lines = "".join(f"{name} = {value}\n" for name, value in points)
        (info / "entry_points.txt").write_text("[fsspec.specs]\n" + lines)
        script = "import fsspec; fs, path = fsspec.core.url_to_fs('strongroom://a/b'); print(type(fs).__name__, path)"
        environment = dict(os.environ, PYTHONPATH=f"{PACKAGE}:{self.folder}/site")
        done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout, "StrongroomFileSystem a/b\n", done.stderr)
