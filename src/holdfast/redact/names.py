"""Recognizes names of secrets, such as `api_key`, by their whole words.

The last words determine whether a name is the name of a secret: `db_password`, `X-Api-Key`,
`githubToken`. Qualifiers may follow (`_prod`, `_2`, `_old`); any other word makes it a different
name (`password_policy`, `token_count`, `secret_name`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping

from .spans import masked


def listed(text: str) -> tuple[str, ...]:
    """Split a table of words that is written as one string."""
    return tuple(text.split())


def word_set(text: str) -> frozenset[str]:
    """Split a table of words that is written as one string, and return the words as a set."""
    return frozenset(text.split())


DEFAULT_KEYS = listed(
    """
password passwd pwd passphrase passcode secret token credential authorization cookie api_key
apikey private_key access_key secret_key encryption_key signing_key connection_string account_key
master_key auth_key service_key client_key subscription_key application_key app_key ssh_key
license_key deploy_key webhook_key auth_header basic_auth jwt otp totp recovery_code backup_code
seed_phrase mnemonic client_key_data passwort kennwort contraseña contrasena senha mot_de_passe
"""
)
SPOKEN = {"passphrase", "mnemonic", "phrase", "words", "seed"}  # names of secrets in plain words
HEADERS = {"authorization", "cookie", "cookies"}  # the last words of headers that `http` reads
# Kinds of names of secrets. `key`: every value is secret. `token`, `tokens`: strings are secret,
# numbers are counts. `weak`: a value is secret if it looks like a secret.
SECRETS = ("key", "token", "tokens", "weak")
NAME = 128  # length of the longest name, in characters

_WORDS = re.compile(r"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?[^\W\d_A-Z]+|\d+")

# More names of the kind `key`, by their last words.
_KEYS = listed(
    """
pswd psw psk key_material key_content saml_response samlresponse record_key scratch_code authtok
clé_wi_fi clé_wifi code_wi_fi wifi_code code_wifi puk einmalcode bestätigungscode sicherheitscode
verifizierungscode freischaltcode aktivierungscode code_de_vérification code_de_confirmation
código_de_verificación secret_id secretid creds jwe csrf_secret conn_str conn_string
connection_uri auth_string requirepass passkey masterauth secret_text security_code
security_answer access_code one_time_code verification_code login_code auth_code mfa_code otp_code
pin_code authentication_code sms_code tan authentication_string auth_string one_time_password
recovery_phrase recovery_phrases backup_phrase secret_phrase seed_words recovery_words
signing_secret shared_secret app_password personal_access_token service_account_json
service_account_key kubeconfig_data certificate_key key_base keystore_pass preshared sas_key
shared_access_key wachtwoord lösenord adgangskode passord heslo jelszó salasana şifre sifre parola
hasło haslo пароль пин лозинка κωδικός zugangscode zugangspasswort zugangsdaten anmeldedaten
identifiants geheimnis geheim mdp 密码 密碼 口令 パスワード 暗証番号 비밀번호 암호 รหัสผ่าน סיסמה
"""
)
_PHRASES = listed(
    """
mot_de_passe clé_d_api clé_api clé_secrète clé_privée code_secret code_d_accès parola_d_ordine
palabra_clave clave_secreta clave_api clave_de_api clave_de_acceso clave_privada chave_de_api
chave_secreta chave_privada chiave_api chiave_segreta chiave_privata api_schlüssel
geheimer_schlüssel privater_schlüssel wlan_schlüssel zugangs_schlüssel kata_sandi mật_khẩu
код_доступа ключ_api api_nyckel api_sleutel geheime_sleutel klucz_api
"""
)
# Words before `key` that make it a secret: `api_key`, `signing_key`, `stripe_key`.
_KEYED = word_set("""
access account activation admin aes anon apn app application auth authentication authorization aws
azure backup bearer bot captcha cipher client cloudflare consumer cookie credential crypt crypto
datadog db deepl deploy dev developer device django ec ed25519 encrypt encryption enc fernet
firebase flask function gcp gemini github gitlab google gpg grpc hmac host ingest ingestion
integration jwe jwk jwt kms ldap licence license live machine maps mailgun management mapbox
master mistral node oauth oauth2 oidc openai anthropic openrouter partner pem personal pgp pre
preshared private prod production provisioning recaptcha registration restricted role root rsa
sandbox sas sdk secret security segment sendgrid sentry server service session setup shared sign
signing software ssh ssl staging storage stripe subscription supabase svc symmetric sync tenant
tls totp twilio unlock unseal upload user vapid vault vpn wallet webhook wep wif wifi wlan wpa
write zone product serial
""")
# Words before `key` that name another sort of key: of a table, a cache, a keyboard.
_OPEN_KEYS = word_set("""
public primary foreign partition sort cache object routing idempotency translation message map
dict lookup row column index unique group config setting property hot arrow enter escape tab
delete ctrl issue natural surrogate range composite event react item sonar label cursor short
shortcut compound candidate super alternate sorting ordering each every no
which second next previous storage_object i18n locale field tooltip metric tag selection dedup
trace
""")
# Words before `token` that name another sort of token: of a model, a parser, a page, a design.
_OPEN_TOKENS = word_set("""
eos bos pad unk mask sep cls special next prev previous continuation page pagination design end
start stop begin beginning first last current unexpected expected invalid syntax keyword lexer
operator color colour spacing css input output prompt completion max min num total cached
reasoning audio text image per of each every one two no eot eod bom newline
string identifier comment whitespace punctuation number numeric literal peek consume cancellation
cancel stopping per_token sync next_sync skip offset watermark cursor word think tool image_start
""")
# After these words, `pass` and `pw` mean a password.
_PASS = word_set("""
db database root user admin ssh store key require bind ldap mail smtp imap pop3 ftp sftp my app
vnc http https web proxy wifi wlan login auth svc service mysql postgres pg psql mongo mongodb
redis rabbitmq amqp mqtt sql sa oracle ora jdbc basic sudo sys system server client cert pfx p12
jks keystore truststore trust email webdav webhook repo registry docker nexus artifactory jenkins
sonar vault backup archive zip rar bitwarden master main default test prod stage staging dev
production new old wp wordpress ansible become tomcat remote local host router
""")
_WEAK = listed(
    """
key pass pw pat pin auth sid sess sessid session sessionid session_id phpsessid jsessionid
connect_sid remember_me dsn schlüssel clé clave chave chiave ключ jeton
code_pin code_verifier seed totp_seed identitytoken session_data
sessiondata wif xprv csrf xsrf sas
"""
)
# Qualifiers after the name of a secret.
_WHICH = word_set("""
prod production staging stage dev development test testing live sandbox eu us old new current
previous prev primary secondary backup main default value val plain plaintext text raw string str
data base64 b64 hex enc encoded hash hashed digest pem confirm confirmation confirmed again repeat
repeated base env1 a b c d v1 v2 v3 en de local global master replica admin user root json hashes
for env
""")
# A name that continues with these words describes a secret, but its value is not secret.
_ABOUT = word_set("""
count counts limit limits budget usage used left total cost price rate size length type name
policy ttl expiry expires expiration required params config consent jar schema list field label
placeholder reset strength prompt url uri path file arn ref version status kind format prefix
parser validator provider manager service handler middleware endpoint created updated rotation
""")
# Words before `tokens` that make them secrets; other tokens are counted.
_OWNED = word_set("access refresh auth oauth api bearer session csrf device")
# Names in one word: `PGPASSWORD`, `clientsecret`, `authtoken`, `dbpass`.
_JOINED = re.compile(
    r"[^\W\d_]+(?:passwords?|passwd|passphrase|secrets?|apikeys?|secretkey|accesskey|privatekey"
    r"|passwort|kennwort)"
    r"|(?:access|refresh|auth|oauth|api|bearer|session|csrf|csrfmiddleware|xsrf|id|client|bot|user|identity"
    r"|registry|deploy|device|push|security|login|app|bearer|github|gitlab|npm|private)token"
    r"|(?:secret|access|private|account|signing|encryption|master|auth|preshared|shared|session"
    r"|fernet|ssh|deploy|api|license|subscription|consumer|symmetric|integration|ingestion)key"
    rf"|(?:{'|'.join(sorted(_PASS))})(?:pass|pw|pwd|psw|pswd)"
)
_TAILS = listed(
    """
password passwords passwd passphrase secret secrets key keys passwort kennwort token pass pw pwd
psw pswd
"""
)
_SUFFIX = re.compile(r"\d{1,4}")
_GLUE = re.compile(r"(?<=[a-zA-Zà-ÿ])['’](?=[a-zA-Zà-ÿ])")
# The last words of names of secrets with several words: `API key`, `mot de passe`, `backup codes`.
_LAST = word_set("""
key keys code codes phrase passe string ordine khẩu sandi auth words answer token schlüssel clé
clave chave chiave sleutel pin puk wifi content vérification confirmation verificación api secrète
privée secreta privada privata access wif
""")
# Words for a secret in several languages; a text with one of them may be a label.
NOUNS = word_set("""
password passwords passwd pwd pass passphrase passcode secret secrets token tokens key keys apikey
credential credentials cookie cookies authorization auth login pin code codes passwort passwörter
kennwort kennwörter schlüssel geheimnis zugangsdaten anmeldung anmelden mot passe clé clés jeton
jetons identifiant identifiants contraseña contraseñas contrasena clave claves senha senhas chave
chaves parola password chiave wachtwoord wachtwoorden lösenord adgangskode passord heslo hasło
jelszó salasana şifre пароль пароля пароли ключ токен 密码 密碼 口令 令牌 パスワード トークン
비밀번호 암호 토큰 username
user email signin signup session bearer mnemonic otp totp basic csrf xsrf jwt
""")
CJK = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@functools.lru_cache(maxsize=8192)
def words(name: str) -> tuple[str, ...]:
    """Return the words of a name in any notation: `X-Api-Key`, `api_key` and `apiKey` all yield
    api, key.

    See [redaction](../redaction.md).
    """
    return tuple(word.lower() for word in _WORDS.findall(name))


@functools.lru_cache(maxsize=32)
def names_of(keys: tuple[str, ...], labels: tuple[tuple[str, tuple[str, ...]], ...]) -> Names:
    """Return a `Names` object. The same arguments return the same object, so that redactors share
    its caches.
    """
    return Names(keys, dict(labels))


class Names:
    """Recognizes the names of secrets. `labels` has additional names whose values are masked, by
    rule.
    """

    def __init__(self, keys: Iterable[str], labels: Mapping[str, Iterable[str]]) -> None:
        given = tuple(keys)
        self._ours = set(DEFAULT_KEYS) <= set(given)
        own = set(given) - set(DEFAULT_KEYS) if self._ours else given
        self._own = frozenset(filter(None, map(words, own)))
        self._labels = {words(name): rule for rule, names in labels.items() for name in names}
        self._longest = max(map(len, (*self._own, *self._labels)), default=0)
        self._cached = functools.lru_cache(maxsize=8192)(self._find)
        self.said = functools.lru_cache(maxsize=16384)(self._said)
        self.kinds: dict[str, int] = {}  # the kinds of words, cached by `keywords`

    def __bool__(self) -> bool:
        return self._ours or bool(self._longest)

    def find(self, name: str) -> str | None:
        """Return the kind of a name: one of `SECRETS`, the rule of a label, or None if its value is
        not secret.
        """
        return self._cached(name) if len(name) <= NAME else None

    def _find(self, name: str) -> str | None:
        if "/" in name or masked(name):
            return None
        parts = words(_GLUE.sub(" ", name))
        if self._ours and parts and (said := _said(parts)):
            return said
        if self._own and self._is_own(parts):
            return "key"
        return self._labels.get(parts)

    def _said(self, name: str) -> tuple[str | None, bool]:
        """Return the kind of a name that occurs in a string (see `find`), and whether the words
        before it may belong to the name. The name may be a dotted path.
        """
        own = name.rpartition(".")[2]
        says = self.find(own)
        if own != name and says in (None, "weak") and (whole := self.find(name)):
            says = whole
        weak = says in (None, "weak") or own.lower() == "token"
        return says, weak and own == name and (words(own) or ("",))[-1] in _LAST

    def _is_own(self, parts: tuple[str, ...]) -> bool:
        """Return whether the name contains a name that the application has added, and no word that
        changes its meaning.
        """
        for start in range(len(parts)):
            for end in range(start + 1, min(start + self._longest, len(parts)) + 1):
                if parts[end : end + 1] and parts[end] in _ABOUT:
                    continue
                some = parts[start:end]
                if some in self._own or (*some[:-1], some[-1].removesuffix("s")) in self._own:
                    return True
        return False


@functools.cache
def _table() -> dict[tuple[str, ...], str]:
    """Return the kind of each name, by its last words."""
    found = {words(name): "weak" for name in _WEAK}
    found |= {words(name): "key" for name in (*DEFAULT_KEYS, *_KEYS, *_PHRASES)}
    found |= {("token",): "token", ("cookie",): "token", ("authorization",): "token"}
    return found | {("auth", "header"): "token", ("jwt",): "token", ("jwe",): "token"}


def _said(parts: tuple[str, ...]) -> str | None:
    """Return the kind of a name from its last words, ignoring qualifiers such as `_prod`."""
    while parts and _SUFFIX.fullmatch(parts[-1]):
        parts = parts[:-1]
    if not parts:
        return None
    if found := _ends(parts):
        return found
    for cut in range(1, min(3, len(parts))):
        which = parts[-cut:]
        if not all(word in _WHICH or _SUFFIX.fullmatch(word) for word in which):
            return None
        if found := _ends(parts[:-cut]):
            return found if found != "weak" else None
    return None


# A name that begins with these words describes a secret, but its value is not secret.
_NOT_BEFORE = word_set("""
has is use uses show hide forgot forgotten wrong invalid missing weak existing no without enable
disable allow unknown bad expired
""")


def _ends(parts: tuple[str, ...]) -> str | None:
    last, before = parts[-1], parts[-2] if len(parts) > 1 else ""
    if last not in _endings() and not _ended(last):
        return None
    if before and (parts[0] in _NOT_BEFORE or before in _NOT_BEFORE):
        return None
    if last in ("token", "tokens"):
        return _token(last, before, alone=len(parts) == 1)
    if last in ("key", "keys") and before:
        return _key(parts, before)
    if last in ("pass", "pw") and before:
        return "key" if before in _PASS or last == "pw" else "weak"
    if last in ("pin", "pat", "code") and before:
        return "weak" if last != "code" else _table().get(parts[-3:]) or _table().get(parts[-2:])
    table = _table()
    for size in (4, 3, 2, 1):
        some = parts[-size:]
        if len(some) == size:
            one = (*some[:-1], some[-1].removesuffix("s"))
            if found := table.get(some) or table.get(one):
                return found
    return "key" if _ended(last) else None


def _ended(word: str) -> bool:
    """Return whether a word ends with the name of a secret."""
    if word.isascii():
        return word.endswith(_TAILS) and _JOINED.fullmatch(word) is not None
    joined = _JOINED.fullmatch(word) is not None
    return joined or (CJK.search(word) is not None and word.endswith(_cjk()))


@functools.cache
def _cjk() -> tuple[str, ...]:
    return tuple(name for name in _KEYS if CJK.search(name))


@functools.cache
def _endings() -> frozenset[str]:
    """Return the last word of every name of a secret."""
    found = {name[-1] for name in _table()} | {"token", "key", "pass", "pw", "pin", "pat", "code"}
    return frozenset({*found, *(f"{word}s" for word in found)})


def _token(last: str, before: str, *, alone: bool) -> str | None:
    if last == "tokens":  # usually a count
        return "tokens" if alone or before in _OWNED else None
    return None if before in _OPEN_TOKENS else "token"


def _key(parts: tuple[str, ...], before: str) -> str | None:
    if before in _OPEN_KEYS:
        return None
    if before in _KEYED or before == "api" or _table().get(parts[-2:]) == "key":
        return "key"
    return "weak" if parts[-1] == "key" else None
