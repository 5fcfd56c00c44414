"""Tables of command-line programs: which of their arguments are secrets, and which commands handle
secrets.
"""

from __future__ import annotations

from ..names import listed, word_set

# ruff: noqa: E501 - a line a group of programs

# The kind of the argument of an option. `s`: a secret. `u`: a user and a secret, with a colon between them; `%`
# and `,`: the same with that sign. `c`: cookies. `p`: `pass:` and a secret. `l`: the last argument is the
# secret. `a`: a secret that is attached to the option. `n`: no secret. A number is the position of an argument.
PROGRAMS: dict[str, str] = {
    "curl": "-u:u --user:u -U:u --proxy-user:u -b:c --cookie:c --pass:s --proxy-pass:s -E:u --cert:u --oauth2-bearer:s",
    "wget": "--http-passwd:s --ftp-password:s",
    "http https xh": "-a:u --auth:u",
    "mysql mysqldump mysqladmin mariadb mariadb-dump mycli mysqlimport mysqlsh": "-p:a",
    "redis-cli valkey-cli keydb-cli": "-a:s --pass:s",
    "ldapsearch ldapadd ldapmodify ldapdelete ldapwhoami ldappasswd": "-w:s -s:s",
    "zip unzip 7z 7za rar unrar zipcloak": "-P:s -p:a -hp:a",
    "sshpass": "-p:sa",
    "mongosh mongo mongodump mongorestore mongoexport mongoimport": "-p:s",
    "docker podman nerdctl helm skopeo buildah oras crane": "-p:s --creds:u --src-creds:u --dest-creds:u",
    "sqlcmd bcp osql": "-P:s",
    "az": "-p:s",
    "smbclient rpcclient smbget smbmap crackmapexec netexec": "-U:% -p:s --password:s",
    "lftp ncftpget ncftpput": "-u:, -p:s",
    "snmpwalk snmpget snmpset snmpbulkwalk snmptrap": "-A:s -X:s -c:s",
    "keytool jarsigner": "-storepass:s -keypass:s -srcstorepass:s -deststorepass:s -srckeypass:s -destkeypass:s",
    "openssl": "-passin:p -passout:p -pass:p -k:s -K:s -password:p",
    "gpg gpg2": "--passphrase:s",
    "htpasswd": "-b:l -nb:l -bn:l -cb:l -bc:l -Bb:l -bB:l -nbB:l -Bbn:l -cbB:l",
    "ansible ansible-playbook ansible-vault": "-e:n",
    "xfreerdp rdesktop wfreerdp": "/p:a -p:s",
    "ipmitool": "-P:s",
    "ssh-keygen": "-N:s -P:s",
    "security": "-w:s -p:s",
    "etcdctl": "--user:u",
    "nmcli": "password:s",
    "psexec psexec.exe impacket-psexec": "-p:s",
    "cadaver aria2c": "--http-passwd:s --ftp-passwd:s",
    "svn": "--password:s",
    "influx": "-p:s -password:s -t:s",
    "cqlsh": "-p:s",
    "clickhouse-client clickhouse": "--password:s",
    "isql tsql": "-P:s",
    "hydra medusa": "-p:s",
    "ab": "-A:u -P:u",
    "wpa_passphrase": "2:s",
    "rabbitmqctl": "3:s",
    "useradd usermod": "-p:s",
    "mkpasswd": "-m:n 1:s",
    "mosquitto_pub mosquitto_sub": "-P:s",
    "oc kubectl": "-p:s",
    "iwconfig": "key:s",
    "net": "3:n",
    "cmdkey": "/pass:a",
    "rasdial": "3:s",
    "schtasks": "/rp:s",
    "wmic": "/password:a",
    "winrs": "-p:a /p:a",
    "beeline": "-p:s",
    "hdbsql": "-p:s",
    "db2": "using:s",
    "ykman": "-p:s -P:s -n:s",
    "qpdf": "--decrypt:n",
    "pdftk": "user_pw:s owner_pw:s input_pw:s",
    "pdftotext": "-upw:s -opw:s",
    "steghide": "-p:s",
    "twine": "-p:s",
    "nuget dotnet": "-p:s -k:s --api-key:s",
    "cf": "-p:s",
    "oathtool": "-b:s --base32:s",
    "ibmcloud": "-p:s",
}
OPTIONS = {
    name: dict(one.rsplit(":", 1) for one in options.split())
    for names, options in PROGRAMS.items()
    for name in names.split()
}
# Programs whose `-p` may also be a port, a path or a project.
PORTS = word_set("docker podman nerdctl helm az oc kubectl nuget dotnet cf ibmcloud http https")
# Commands that handle secrets: any argument that looks like a secret counts as a secret.
VERBS = (
    *listed(
        """
login unseal unlock authtoken add-authtoken set-env setenv put-parameter create-secret
put-secret-value update-secret encrypt_string adduser add_user change_password
set-initial-password setapikey authkey passwd auth write export config config:set env:set
"""
    ),
    *("auth login", "auth init", "auth add", "auth set", "auth activate-service-account"),
    *("config set", "config add", "configure set", "remote modify", "user add", "user create"),
    *("kv put", "keyvault secret set"),
    *(
        f"{what} {verb}"
        for what in listed("secret secrets credential credentials variable variables alias")
        for verb in ("set", "put", "add", "create", "import", "update", "write", "versions add")
    ),
    *(f"create secret {kind}" for kind in ("generic", "docker-registry", "tls")),
)
