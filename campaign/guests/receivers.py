"""What arrived in a guest: the mails of its mail server, the requests of its web server.

`files/etc/smtpd.conf` and `files/usr/local/sbin/webhook` say where they listen."""
import base64, email, email.policy, json, time

from .guest import GuestError

LOOK_SECONDS = 0.5


def mails(guest, at_least=0, seconds=60):
    """The mails that arrived, as `email.message.EmailMessage`, oldest first.

    Waits until there are `at_least` this many; it is an error if they do not come in time."""
    return await_count(lambda: look_at_mails(guest), "mails", at_least, seconds)


def requests(guest, at_least=0, seconds=60):
    """The requests that the web server received, as dictionaries, oldest first; waits as `mails`."""
    return await_count(lambda: look_at_requests(guest), "requests", at_least, seconds)


def forget(guest):
    """Empties the mailbox and the list of requests."""
    guest.check("rm -f /home/keeper/mail/new/* /var/lib/webhook/requests")


def answer_requests(guest, answer):
    """What the web server does with requests from now on: a status such as 500, or "hang"."""
    guest.write("/var/lib/webhook/answer", str(answer))


def await_count(look, what, at_least, seconds):
    end = time.monotonic() + seconds
    while len(found := look()) < at_least:
        if time.monotonic() > end:
            raise GuestError(f"{len(found)} {what} in {seconds} s, not {at_least}: {found}")
        time.sleep(LOOK_SECONDS)
    return found


def look_at_mails(guest):
    lines = guest.check("for mail in $(ls -tr /home/keeper/mail/new/* 2>/dev/null); do"
                        " base64 -w0 $mail; echo; done").split()
    return [email.message_from_bytes(base64.b64decode(line), policy=email.policy.default)
            for line in lines]


def look_at_requests(guest):
    lines = guest.check("cat /var/lib/webhook/requests 2>/dev/null || true").splitlines()
    return [json.loads(line) for line in lines]
