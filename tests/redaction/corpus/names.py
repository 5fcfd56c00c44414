"""Secrets that only the name before them gives away: how people write such names, in which
languages, and what stands between the name and the value."""

from __future__ import annotations

from tests.redaction.corpus.make import (
    Cases,
    alnum,
    base64std,
    digits,
    hexes,
    phrase,
    plain_password,
    short_password,
    uuid,
    word,
    words_password,
)

CASES = Cases()
add = CASES.add

# --- one name, one value -------------------------------------------------------------------------

ENGLISH = (
    "password passwd pwd passphrase db_pass user_password PGPASSWORD MYSQL_ROOT_PASSWORD "
    "admin-password dbPassword ldapBindPassword KEYSTORE_PASSWORD smtp_password wifi_password "
    "spring.datasource.password masterPassword sudo_pass root_pw newPassword passwordConfirmation"
)
for n, name in enumerate(ENGLISH.split()):
    glue = ("=", ": ", " = ", " := ", "=")[n % 5]
    value = plain_password(name)
    add(
        "name-password",
        name,
        f"{name}{glue}§v§\nregion{glue}eu-west-1\n",
        [name, "eu-west-1"],
        v=value,
    )

TOKENS = (
    "api_key apiKey APIKEY x-api-key access_token refreshToken auth_token bearer_token "
    "client_secret CLIENT-SECRET consumerSecret signing_key encryption_key SECRET_KEY_BASE "
    "webhook_secret cookie_secret jwtSecret session_token deploy_key service_account_key "
    "app_secret hmac_key private_token license_key master_key bot_token id_token storage_key"
)
for n, name in enumerate(TOKENS.split()):
    glue = ("=", ": ", '="', "': '", '": "')[n % 5]
    start, end = (glue[0] if glue[0] in "'\"" else ""), (glue[-1] if glue[-1] in "'\"" else "")
    maker = (
        lambda s: alnum(s, 32),
        lambda s: hexes(s, 40),
        lambda s: base64std(s, 24),
        uuid,
        lambda s: alnum(s, 24),
        lambda s: hexes(s, 64),
    )[n % 6]
    add("name-token", name, f"{start}{name}{glue}§v§{end}\n", [name], v=maker(name))

FOREIGN = {
    "german": "Passwort: §v§",
    "german-kennwort": "Kennwort=§v§",
    "german-compound": "datenbank_passwort = §v§",
    "german-access": "Zugangsdaten: Benutzer=weber Passwort=§v§",
    "french": "mot_de_passe = §v§",
    "french-spaced": "Mot de passe : §v§",
    "french-short": "mdp=§v§",
    "spanish": "contraseña: §v§",
    "portuguese": "senha=§v§",
    "dutch": "wachtwoord: §v§",
    "italian": "parola d'ordine: §v§",
    "polish": "hasło: §v§",
    "swedish": "lösenord=§v§",
    "russian": "пароль: §v§",
    "chinese": "密码：§v§",
    "japanese": "パスワード: §v§",
}
for name, line in FOREIGN.items():
    label = line.partition("§")[0].strip(" :=：").split("=")[-1].split()[-1]
    add("name-foreign", name, line + "\n", [label], v=plain_password(name))

# --- the value is short, or says little by itself ------------------------------------------------

add("short-value", "word-and-digits", "password=§v§\n", ["password"], v=short_password("a"))
add("short-value", "quoted", "db.password = '§v§'\n", ["db.password"], v=short_password("b"))
add("short-value", "json", '{"user": "eva", "password": "§v§"}', ["eva"], v=short_password("c"))
add("short-value", "word-alone", "root_password: §v§\n", ["root_password"], v=word("alone"))
add("short-value", "pin", "SIM PIN: §v§\n", ["SIM PIN"], v=digits("pin", 4))
add("short-value", "digits", "keypad_password=§v§\n", ["keypad_password"], v=digits("keypad", 8))
add(
    "short-value",
    "all-capitals",
    "VNC_PASSWORD=§v§\n",
    ["VNC_PASSWORD"],
    v="TIGER" + digits("v", 3),
)

# --- values with characters that end a value elsewhere -------------------------------------------

add(
    "odd-characters",
    "hash-inside",
    'DB_PASSWORD="§v§"\nDB_PORT=5432\n',
    ["DB_PASSWORD", "DB_PORT=5432"],
    v="maple#" + words_password("hash"),
)
add(
    "odd-characters",
    "blanks-inside",
    'passphrase: "§v§"\nuser: anna\n',
    ["passphrase", "user: anna"],
    v=phrase("blanks", 5),
)
add(
    "odd-characters",
    "blanks-unquoted",
    "Passphrase: §v§\nUser: anna\n",
    ["Passphrase", "User: anna"],
    v=phrase("unquoted", 4),
)
add(
    "odd-characters",
    "equals-inside",
    "secret_key=§v§\nnext_line=plain\n",
    ["secret_key", "next_line=plain"],
    v=alnum("eq", 10) + "=" + alnum("eq2", 9) + "==",
)
add(
    "odd-characters",
    "comma-and-semicolon",
    'admin_password = "§v§"\n',
    ["admin_password"],
    v="Cedar,7;" + words_password("comma"),
)
add(
    "odd-characters",
    "quote-inside",
    'password = "§v§"\nhost = "db1"\n',
    ["password", "db1"],
    v="it's" + words_password("quote") + "'s",
)
add(
    "odd-characters",
    "umlauts",
    "wifi_password: §v§\n",
    ["wifi_password"],
    v="Grüße-" + plain_password("umlaut"),
)
add(
    "odd-characters",
    "dollar-inside",
    "export MAIL_PASSWORD='§v§'\n",
    ["MAIL_PASSWORD"],
    v="pa$$" + words_password("dollar"),
)
add(
    "odd-characters",
    "begins-with-brace",
    "redis_password: '§v§'\n",
    ["redis_password"],
    v="{" + plain_password("brace") + "}9",
)
add(
    "odd-characters",
    "angle-inside",
    'password = "§v§"\n',
    ["password"],
    v="a<" + plain_password("angle") + ">7",
)

# --- what stands between the name and its value --------------------------------------------------

LAYOUTS = {
    "arrow": ("password => §v§", "password"),
    "fat-colon": ("password :: §v§", "password"),
    "many-blanks": ("Password              §v§", "Password"),
    "dots": ("Password .............: §v§", "Password"),
    "tabs": ("user\tdeploy\npassword\t§v§", "deploy"),
    "next-line": ("Password:\n    §v§\nHost:\n    db.example.net", "db.example.net"),
    "bullet": ("- **Password**: `§v§`\n- **Host**: `db.example.net`", "db.example.net"),
    "bracketed-unit": ("Password (read only): §v§", "read only"),
    "brackets": ("[password=§v§]", "password"),
    "slash-pair": ("login/password: deploy/§v§", "deploy"),
    "quoted-name": ("'api-password' : '§v§'", "api-password"),
    "trailing-comment": ("password = §v§  # rotate in May", "rotate in May"),
    "default-in-help": ("  --db-password TEXT  [default: §v§]", "--db-password"),
    "prompt-echo": ("Enter password: §v§\nLogin successful", "Login successful"),
    "prompt-for-user": ("deploy@build-07's password: §v§", "deploy@build-07"),
    "sudo-prompt": ("[sudo] password for anna: §v§\nReading package lists...", "for anna"),
    "nbsp": ("Password:\u00a0§v§", "Password"),
    "crlf": ("user=anna\r\npassword=§v§\r\nmode=ro\r\n", "mode=ro"),
}
for name, (text, keep) in LAYOUTS.items():
    add("name-layout", name, text + "\n", [keep], v=plain_password(f"layout/{name}"))

# --- names that no list of passwords thinks of ---------------------------------------------------

add(
    "recovery",
    "mnemonic",
    "wallet mnemonic: §v§\nnetwork: testnet\n",
    ["mnemonic", "testnet"],
    v=phrase("mnemonic", 12),
)
add(
    "recovery",
    "seed-phrase-quoted",
    'SEED_PHRASE="§v§"\n',
    ["SEED_PHRASE"],
    v=phrase("seed", 12),
)
add(
    "recovery",
    "backup-codes",
    "\nYour backup codes:\n  §a§\n  §b§\n  §c§\nKeep them somewhere safe.\n",
    ["Your backup codes", "Keep them somewhere safe."],
    a=f"{digits('bc1', 4)}-{digits('bc2', 4)}",
    b=f"{digits('bc3', 4)}-{digits('bc4', 4)}",
    c=f"{digits('bc5', 4)}-{digits('bc6', 4)}",
)
add(
    "recovery",
    "recovery-key",
    "BitLocker recovery key: §v§\n",
    ["BitLocker"],
    v="-".join(digits(f"bl{n}", 6) for n in range(8)),
)
add(
    "recovery",
    "unseal-key",
    "Unseal Key 1: §a§\nUnseal Key 2: §b§\n\nInitial Root Token: §t§\n",
    ["Unseal Key 1", "Initial Root Token"],
    a=base64std("unseal1", 33),
    b=base64std("unseal2", 33),
    t="hvs." + alnum("root", 24),
)
add(
    "recovery",
    "one-time-code",
    "Your verification code is §v§. It expires in ten minutes.\n",
    ["It expires in ten minutes."],
    v=digits("otp", 6),
)
