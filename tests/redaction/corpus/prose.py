"""Secrets that people tell one another, in English, German and French."""

from __future__ import annotations

from tests.redaction.corpus.make import (
    Cases,
    alnum,
    base64url,
    hexes,
    phrase,
    plain_password,
    short_password,
    words_password,
)

CASES = Cases()
add = CASES.add

ENGLISH = {
    "is": ("The password is §v§ and the user is deploy.", "the user is deploy"),
    "is-quoted": ('The admin password is "§v§", please change it.', "please change it"),
    "my": ("my password is §v§, can you log in and look?", "can you log in and look?"),
    "use": ("Log in as anna with password §v§ and open the report.", "open the report"),
    "user-slash": ("Credentials for staging: admin / §v§", "Credentials for staging: admin"),
    "colon": ("Here you go. Password: §v§. Ping me when you are in.", "Ping me when you are in"),
    "backticks": ("I set the root password to `§v§` on all three hosts.", "on all three hosts"),
    "changed-from": ("We changed the wifi password from §v§ last week.", "last week"),
    "passphrase": ("The passphrase for the key is '§v§'.", "for the key"),
    "should-be": ("For the demo account the password should be §v§", "For the demo account"),
    "still": ("The DB password is still §v§ from last year", "from last year"),
    "pw-short": ("user: admin pw: §v§", "user: admin"),
    "pass-short": ("ssh to build-07, user root, pass §v§", "ssh to build-07"),
    "try": ("try the password §v§ on the other box", "on the other box"),
    "parenthesis": ("Open the archive (password: §v§) and look at page 3.", "look at page 3"),
    "login-with": ("You can login with anna@example.com and §v§ as password.", "anna@example.com"),
    "temporary": ("Your temporary password is: §v§\nChange it at first login.", "first login"),
    "next-line": ("The password for the share is:\n\n    §v§\n\nRegards, Anna", "Regards, Anna"),
    "wifi": ("Guest wifi is 'Kestrel', key §v§", "Kestrel"),
    "was": ("Funny, the old password was §v§ all along.", "all along"),
}
for n, (name, (text, keep)) in enumerate(ENGLISH.items()):
    value = words_password(f"en/{name}", "!-+") if n % 2 else plain_password(f"en/{name}")
    add("prose-english", name, text + "\n", [keep], v=value)

GERMAN = {
    "lautet": ("Mein Passwort lautet §v§, bitte nicht weitersagen.", "bitte nicht weitersagen"),
    "ist": ("Das Passwort ist §v§ und der Benutzer heißt meier.", "der Benutzer heißt meier"),
    "kennwort": ("Das Kennwort für den Server lautet: §v§", "für den Server"),
    "zugang": ("Zugang: Benutzer meier, Passwort §v§", "Benutzer meier"),
    "anmelden": ("Melde dich mit dem Passwort „§v§“ an, dann auf Export.", "dann auf Export"),
    "wlan": ("Der WLAN-Schlüssel ist §v§ (Gäste).", "(Gäste)"),
    "geaendert": ("Ich habe das Root-Passwort auf §v§ geändert.", "geändert"),
    "neues": ("Neues Passwort: §v§ — gilt ab morgen", "gilt ab morgen"),
    "zugangsdaten": ("Die Zugangsdaten sind admin / §v§", "Die Zugangsdaten sind admin"),
    "schluessel": ("Der API-Schlüssel lautet §v§", "Der API-Schlüssel lautet"),
}
for name, (text, keep) in GERMAN.items():
    value = alnum(name, 32) if name == "schluessel" else words_password(f"de/{name}", "!-+")
    add("prose-german", name, text + "\n", [keep], v=value)

FRENCH = {
    "est": ("Le mot de passe est §v§ et l'utilisateur est durand.", "l'utilisateur est durand"),
    "mon": ("mon mot de passe c'est §v§, ne le partage pas", "ne le partage pas"),
    "voici": ("Voici le mot de passe : §v§. Bonne journée !", "Bonne journée"),
    "guillemets": ("Connecte-toi avec le mot de passe « §v§ » puis exporte.", "puis exporte"),
    "identifiants": ("Identifiants : admin / §v§", "Identifiants : admin"),
    "cle": ("La clé d'API est §v§", "La clé d'API est"),
    "mdp": ("le mdp du wifi c'est §v§", "le mdp du wifi"),
    "code": ("Nouveau mot de passe temporaire: §v§ (valable une heure)", "valable une heure"),
}
for name, (text, keep) in FRENCH.items():
    value = alnum(name, 32) if name == "cle" else words_password(f"fr/{name}", "!-+")
    add("prose-french", name, text + "\n", [keep], v=value)

# --- tokens in prose -----------------------------------------------------------------------------

add(
    "prose-token",
    "api-key-is",
    "Our API key is §t§, it has read access only.\n",
    ["it has read access only"],
    t=hexes("api-key-is", 32),
)
add(
    "prose-token",
    "token-here",
    "here's the token you asked for: §t§\n",
    ["you asked for"],
    t=base64url("token-here", 40),
)
add(
    "prose-token",
    "secret-in-markdown",
    "The client secret (**§t§**) must go into the vault.\n",
    ["must go into the vault"],
    t=alnum("secret-md", 36),
)
add(
    "prose-token",
    "license",
    "The licence key is §t§ for ten seats.\n",
    ["for ten seats"],
    t="-".join(alnum(f"lic{n}", 5).upper() for n in range(5)),
)
add(
    "prose-token",
    "sentence-end",
    "I used the access token §t§. It failed.\n",
    ["It failed."],
    t=alnum("sentence-end", 40),
)
add(
    "prose-token",
    "spoken-passphrase",
    'The passphrase of the backup is "§p§" without the quotes.\n',
    ["without the quotes"],
    p=phrase("spoken", 5),
)

# --- chats ---------------------------------------------------------------------------------------

add(
    "chat",
    "question-and-answer",
    "[10:02] Anna: what's the password of the staging box?\n[10:03] Bert: §p§\n[10:04] Anna: thx\n",
    ["what's the password of the staging box?", "thx"],
    p=words_password("chat/qa"),
)
add(
    "chat",
    "inline",
    "bert> user is deploy, pwd is §p§\nanna> got it\n",
    ["user is deploy", "got it"],
    p=short_password("chat/inline"),
)
add(
    "chat",
    "assistant-echo",
    "User: connect with admin:§p§ please\nAssistant: Connecting as admin with password §p§ ...\n",
    ["Connecting as admin"],
    p=plain_password("chat/echo"),
)
add(
    "chat",
    "mail",
    "Hi Bert,\n\nhere is your login:\n\n  Username: bert\n  Password: §p§\n\nBest\nAnna\n",
    ["Username: bert", "Best\nAnna"],
    p=words_password("chat/mail"),
)
add(
    "chat",
    "tool-call",
    '{"type":"tool_use","name":"Bash",'
    '"input":{"command":"mysql -u root -p§p§ -e \'show tables\'"}}',
    ["tool_use", "show tables"],
    p=plain_password("chat/tool"),
)
add(
    "chat",
    "form-answer",
    "Q: Mother's maiden name (security answer)?\nA: §p§\n",
    ["Mother's maiden name"],
    p=words_password("chat/answer"),
)
