"""Secrets on command lines and in what commands print."""

from __future__ import annotations

from tests.redaction.corpus.make import (
    Cases,
    alnum,
    base64std,
    base64url,
    basic,
    checked,
    encoded,
    hexes,
    jwt,
    plain_password,
    short_password,
    upper,
    uuid,
    words_password,
)

CASES = Cases()
add = CASES.add

# --- curl ----------------------------------------------------------------------------------------

add(
    "curl",
    "user",
    "curl -u anna:§p§ https://api.example.com/v1/items\n",
    ["curl -u anna:", "https://api.example.com/v1/items"],
    p=plain_password("curl/u"),
)
add(
    "curl",
    "user-quoted",
    "curl -s --user 'svc:§p§' -o out.json https://api.example.com/report\n",
    ["svc", "-o out.json", "https://api.example.com/report"],
    p=words_password("curl/user"),
)
add(
    "curl",
    "user-glued",
    "curl -uanna:§p§ -k https://192.0.2.10/status\n",
    ["anna", "https://192.0.2.10/status"],
    p=short_password("curl/glued"),
)
add(
    "curl",
    "token-as-user",
    "curl https://api.pay.example.com/v1/charges -u §t§: -d amount=500\n",
    ["https://api.pay.example.com/v1/charges", "amount=500"],
    t=alnum("curl/token", 32),
)
add(
    "curl",
    "bearer-header",
    'curl -H "Authorization: Bearer §t§" -H "Accept: application/json" https://h.example/me\n',
    ["Authorization: Bearer", "Accept: application/json", "https://h.example/me"],
    t=alnum("curl/bearer", 40),
)
add(
    "curl",
    "key-header",
    "curl --header 'X-Api-Key: §t§' https://h.example/v2/search?q=tea\n",
    ["X-Api-Key", "search?q=tea"],
    t=hexes("curl/key", 32),
)
add(
    "curl",
    "vendor-header",
    "curl -H 'PRIVATE-TOKEN: §t§' https://git.example.com/api/v4/projects\n",
    ["PRIVATE-TOKEN", "/api/v4/projects"],
    t=alnum("curl/private", 20),
)
add(
    "curl",
    "cookie",
    "curl -b 'sessionid=§s§; lang=de' https://shop.example.com/cart\n",
    ["lang=de", "https://shop.example.com/cart"],
    s=hexes("curl/cookie", 32),
)
add(
    "curl",
    "json-body",
    """
    curl -X POST https://shop.example.com/login \\
      -H 'Content-Type: application/json' \\
      -d '{"email":"anna@example.com","password":"§p§"}'
    """,
    ["https://shop.example.com/login", "anna@example.com"],
    p=words_password("curl/json"),
)
add(
    "curl",
    "form-body",
    "curl -F user=anna -F password=§p§ -F file=@a.txt https://up.example.com/\n",
    ["user=anna", "file=@a.txt"],
    p=plain_password("curl/form"),
)
add(
    "curl",
    "verbose",
    """
    * Server auth using Basic with user 'anna'
    > GET /private HTTP/1.1
    > Host: intranet.example.com
    > Authorization: Basic §b§
    > User-Agent: curl/8.5.0
    < HTTP/1.1 200 OK
    < Set-Cookie: SESSION=§s§; Path=/; HttpOnly
    < Content-Type: text/html
    """,
    ["user 'anna'", "intranet.example.com", "curl/8.5.0", "text/html", "HttpOnly"],
    b=basic("anna", words_password("curl/v")),
    s=uuid("curl/v"),
)
add(
    "curl",
    "proxy",
    "curl -x http://proxyuser:§p§@proxy.example.com:3128 https://example.org/\n",
    ["proxyuser", "proxy.example.com:3128", "https://example.org/"],
    p=plain_password("curl/proxy"),
)
add(
    "curl",
    "httpie",
    "http -a anna:§p§ POST h.example/items X-Auth-Token:§t§ name=desk\n",
    ["anna", "name=desk"],
    p=plain_password("httpie"),
    t=alnum("httpie", 24),
)
add(
    "curl",
    "wget",
    "wget --user=anna --password='§p§' https://files.example.com/a.zip\n",
    ["--user=anna", "https://files.example.com/a.zip"],
    p=words_password("wget"),
)
add(
    "curl",
    "invoke-restmethod",
    "Invoke-RestMethod -Uri https://h.example/me -Headers @{ 'Authorization' = 'Bearer §t§' }\n",
    ["https://h.example/me", "Invoke-RestMethod"],
    t=alnum("irm", 40),
)

# --- one option, one secret ----------------------------------------------------------------------

OPTIONS = {
    "docker-login": ("docker login -u ci -p §v§ registry.example.com", "registry.example.com"),
    "docker-login-long": (
        "docker login --username=ci --password=§v§ r.example.com",
        "--username=ci",
    ),
    "docker-run-env": (
        "docker run -d -e POSTGRES_PASSWORD=§v§ -p 5432:5432 postgres:16",
        "5432:5432",
    ),
    "podman": ("podman login -u='robot' -p='§v§' quay.example.io", "quay.example.io"),
    "helm-set": (
        "helm install shop ./chart --set db.password=§v§ --namespace web",
        "--namespace web",
    ),
    "kubectl-literal": (
        "kubectl create secret generic db --from-literal=password=§v§ -n prod",
        "kubectl create secret generic db",
    ),
    "kubectl-registry": (
        "kubectl create secret docker-registry pull --docker-username=ci --docker-password=§v§",
        "--docker-username=ci",
    ),
    "redis-cli": ("redis-cli -h cache.example.com -a §v§ PING", "cache.example.com"),
    "redis-auth": ("127.0.0.1:6379> AUTH §v§\nOK", "OK"),
    "redis-config": ("CONFIG SET requirepass §v§", "requirepass"),
    "ldapsearch": (
        "ldapsearch -x -D cn=admin,dc=example -w §v§ -b dc=example",
        "cn=admin,dc=example",
    ),
    "ldappasswd": ("ldappasswd -s §v§ uid=anna,ou=people", "uid=anna,ou=people"),
    "zip": ("zip -P §v§ backup.zip notes.txt", "backup.zip notes.txt"),
    "unzip": ("unzip -P §v§ backup.zip -d /tmp/x", "backup.zip -d /tmp/x"),
    "seven-zip": ("7z x archive.7z -p§v§ -o/tmp/out", "-o/tmp/out"),
    "mongosh": ("mongosh --host db1 -u root -p §v§ --authenticationDatabase admin", "-u root"),
    "mongodump": ("mongodump --username=backup --password=§v§ --out=/dump", "--out=/dump"),
    "mysql-glued": ("mysql -h db1 -u root -p§v§ shop", "-u root"),
    "mysqldump-long": ("mysqldump --user=root --password=§v§ shop > shop.sql", "shop.sql"),
    "psql-variable": ("PGPASSWORD=§v§ psql -h db1 -U app -d shop", "-h db1 -U app -d shop"),
    "psql-url": ('psql "postgresql://app:§v§@db1:5432/shop"', "@db1:5432/shop"),
    "sshpass": ("sshpass -p §v§ ssh deploy@build-07 uptime", "ssh deploy@build-07 uptime"),
    "sshpass-quoted": ("sshpass -p '§v§' scp a.tgz root@192.0.2.4:/srv", "root@192.0.2.4:/srv"),
    "sshpass-env": ("SSHPASS=§v§ sshpass -e rsync -a . deploy@web:/srv", "deploy@web:/srv"),
    "htpasswd": ("htpasswd -b -B /etc/nginx/.htpasswd anna §v§", "/etc/nginx/.htpasswd anna"),
    "chpasswd": ("echo 'anna:§v§' | sudo chpasswd", "sudo chpasswd"),
    "passwd-stdin": ("echo §v§ | passwd --stdin anna", "passwd --stdin anna"),
    "sudo-stdin": ("echo '§v§' | sudo -S apt-get update", "sudo -S apt-get update"),
    "useradd": ("useradd -m -p $(openssl passwd -6 §v§) anna", "anna"),
    "openssl-pass": ("openssl enc -aes-256-cbc -in a -out b -pass pass:§v§", "-in a -out b"),
    "openssl-passin": ("openssl rsa -in key.pem -passin pass:§v§ -out plain.pem", "-out plain.pem"),
    "openssl-pkcs12": (
        "openssl pkcs12 -export -in c.pem -passout 'pass:§v§' -out c.p12",
        "-out c.p12",
    ),
    "keytool": ("keytool -list -keystore app.jks -storepass §v§ -alias web", "-alias web"),
    "keytool-both": ("keytool -genkey -keypass §v§ -keystore app.jks", "app.jks"),
    "gpg": ("gpg --batch --passphrase '§v§' -d mail.gpg", "mail.gpg"),
    "cryptsetup": ("echo -n '§v§' | cryptsetup luksOpen /dev/sdb1 data -", "/dev/sdb1 data"),
    "smbclient": ("smbclient //nas/share -U anna%§v§ -c ls", "//nas/share -U anna"),
    "mount-cifs": ("mount -t cifs //nas/x /mnt -o username=anna,password=§v§,vers=3.0", "vers=3.0"),
    "net-use": ("net use Z: \\\\nas\\share §v§ /user:CORP\\anna", "/user:CORP\\anna"),
    "sqlcmd": ("sqlcmd -S db1 -U sa -P §v§ -Q 'select 1'", "-S db1 -U sa"),
    "sqlplus": ("sqlplus hr/§v§@//db1:1521/ORCL", "@//db1:1521/ORCL"),
    "az-login": ("az login --service-principal -u app -p §v§ --tenant contoso", "--tenant contoso"),
    "ftp": ("lftp -u anna,§v§ ftp.example.com -e 'ls; quit'", "ftp.example.com"),
    "rclone": ("rclone lsd :webdav: --webdav-user anna --webdav-pass §v§", "--webdav-user anna"),
    "restic": ("RESTIC_PASSWORD='§v§' restic -r /srv/backup snapshots", "-r /srv/backup snapshots"),
    "ansible": ("ansible-playbook site.yml -e ansible_become_pass=§v§ -l web", "site.yml"),
    "nmcli": ("nmcli device wifi connect Hotel password §v§", "connect Hotel"),
    "wpa": ("wpa_passphrase HomeNet §v§", "HomeNet"),
    "expect": ('expect "assword:"\nsend "§v§\\r"\ninteract', "interact"),
    "heroku-config": ("heroku config:set SMTP_PASSWORD=§v§ -a shop", "-a shop"),
    "vault-kv": ("vault kv put secret/shop/db username=app password=§v§", "username=app"),
    "rabbitmqctl": ("rabbitmqctl add_user ingest §v§", "add_user ingest"),
    "powershell-secure": (
        'ConvertTo-SecureString "§v§" -AsPlainText -Force',
        "-AsPlainText -Force",
    ),
    "ipmitool": ("ipmitool -I lanplus -H 10.0.0.9 -U ADMIN -P §v§ power status", "power status"),
    "snmp": ("snmpwalk -v3 -u mon -a SHA -A §v§ -l authNoPriv 10.0.0.2", "authNoPriv 10.0.0.2"),
}
for name, (line, keep) in OPTIONS.items():
    quoted = "'§v§'" in line or '"§v§"' in line or "'pass:§" in line
    value = words_password(name, "!.-+#") if quoted else plain_password(name)
    add("shell-option", name, f"$ {line}\n", [keep], v=value)

# --- tools that take tokens ----------------------------------------------------------------------

add(
    "cloud-cli",
    "aws-configure",
    """
    $ aws configure
    AWS Access Key ID [None]: §i§
    AWS Secret Access Key [None]: §s§
    Default region name [None]: eu-west-1
    Default output format [None]: json
    """,
    ["AWS Secret Access Key [None]", "eu-west-1", "json"],
    {"i": "AKIA" + upper("configure", 16)},
    s=base64std("configure", 30),
)
add(
    "cloud-cli",
    "aws-configure-set",
    "aws configure set aws_secret_access_key §s§ --profile ci\n",
    ["--profile ci"],
    s=base64std("configure-set", 30),
)
add(
    "cloud-cli",
    "aws-sts",
    """
    {
        "Credentials": {
            "AccessKeyId": "§i§",
            "SecretAccessKey": "§s§",
            "SessionToken": "§t§",
            "Expiration": "2025-03-01T12:00:00Z"
        }
    }
    """,
    ["AccessKeyId", "2025-03-01T12:00:00Z"],
    {"i": "ASIA" + upper("sts", 16)},
    s=base64std("sts", 30),
    t="IQoJb3JpZ2luX2Vj" + base64std("sts/token", 240),
)
add(
    "cloud-cli",
    "gh-auth",
    "$ echo §t§ | gh auth login --with-token\n✓ Logged in as anna\n",
    ["gh auth login --with-token", "Logged in as anna"],
    t=checked("ghp_", "gh-auth"),
)
add(
    "cloud-cli",
    "gh-secret",
    "gh secret set DEPLOY_PASSWORD --body '§p§' --repo acme/shop\n",
    ["DEPLOY_PASSWORD", "--repo acme/shop"],
    p=words_password("gh-secret"),
)
add(
    "cloud-cli",
    "gcloud-token",
    "$ gcloud auth print-access-token\n§t§\n",
    ["gcloud auth print-access-token"],
    t="ya29." + base64url("gcloud", 160),
)
add(
    "cloud-cli",
    "az-account",
    '{\n  "accessToken": "§t§",\n  "expiresOn": "2025-03-01 12:00:00",\n'
    '  "tokenType": "Bearer"\n}\n',
    ["2025-03-01 12:00:00", "Bearer"],
    t=jwt("az-account", aud="https://management.example.com"),
)
add(
    "cloud-cli",
    "az-sp",
    '{\n  "appId": "§a§",\n  "displayName": "ci",\n  "password": "§p§",\n  "tenant": "§n§"\n}\n',
    ['"displayName": "ci"'],
    {"a": uuid("sp/app"), "n": uuid("sp/tenant")},
    p=alnum("sp1", 3) + "8Q~" + base64url("sp", 34),
)
add(
    "cloud-cli",
    "npm-token-set",
    "npm config set //npm.example.com/:_authToken §t§\n",
    ["npm config set", "//npm.example.com/"],
    t=hexes("npm-set", 36),
)
add(
    "cloud-cli",
    "twine",
    "twine upload -u __token__ -p §t§ dist/*\n",
    ["-u __token__", "dist/*"],
    t="pypi-AgEIcHlwaS5vcmc" + base64url("twine", 140),
)
add(
    "cloud-cli",
    "pass-show",
    "$ pass show mail/work\n§p§\nlogin: anna\n",
    ["pass show mail/work", "login: anna"],
    p=words_password("pass-show"),
)
add(
    "cloud-cli",
    "kubectl-decode",
    "$ kubectl get secret db -o jsonpath='{.data.password}' | base64 -d\n§p§\n$ kubectl get pods\n",
    ["kubectl get secret db", "kubectl get pods"],
    p=words_password("decode"),
)
add(
    "cloud-cli",
    "vault-read",
    """
    $ vault kv get secret/shop
    ====== Data ======
    Key         Value
    ---         -----
    username    app
    password    §p§
    """,
    ["vault kv get secret/shop", "username    app"],
    p=words_password("vault-read"),
)
add(
    "cloud-cli",
    "op-read",
    "$ op read op://work/db/password\n§p§\n",
    ["op://work/db/password"],
    p=words_password("op-read"),
)

# --- git -----------------------------------------------------------------------------------------

add(
    "git-url",
    "clone",
    "git clone https://anna:§t§@github.com/acme/shop.git\n",
    ["https://anna:", "@github.com/acme/shop.git"],
    t=checked("ghp_", "clone"),
)
add(
    "git-url",
    "token-alone",
    "git remote add origin https://§t§@git.example.com/acme/shop.git\n",
    ["@git.example.com/acme/shop.git"],
    t=alnum("remote", 40),
)
add(
    "git-url",
    "oauth2",
    "git push https://oauth2:§t§@gitlab.example.com/acme/shop.git HEAD:main\n",
    ["https://oauth2:", "HEAD:main"],
    t="glpat-" + base64url("push", 20),
)
add(
    "git-url",
    "remote-v",
    "origin\thttps://bot:§p§@git.example.com/x.git (fetch)\n"
    "origin\thttps://bot:§p§@git.example.com/x.git (push)\n",
    ["origin\thttps://bot:", "(fetch)", "(push)"],
    p=plain_password("remote-v"),
)
add(
    "git-url",
    "fatal",
    "fatal: unable to access 'https://bot:§p§@git.example.com/x.git/': Could not resolve host\n",
    ["fatal: unable to access", "Could not resolve host"],
    p=plain_password("fatal"),
)
add(
    "git-url",
    "credentials-file",
    "https://anna:§a§@git.example.com\nhttps://bert:§b§@code.example.org\n",
    ["https://anna:", "@git.example.com", "https://bert:"],
    a=hexes("cred/a", 40),
    b=words_password("cred/b", "!").replace("!", "%21"),
)
add(
    "git-url",
    "extraheader",
    'git -c http.extraheader="AUTHORIZATION: basic §b§" fetch origin\n',
    ["fetch origin"],
    b=basic("x-access-token", checked("ghs_", "extraheader")),
)
add(
    "git-url",
    "pip-install",
    "pip install git+https://deploy:§t§@git.example.com/lib.git@v1.2\n",
    ["git+https://deploy:", "@git.example.com/lib.git@v1.2"],
    t=alnum("pip-git", 26),
)

# --- environments, processes, histories ----------------------------------------------------------

add(
    "environment",
    "export",
    "export OPENAI_KEY=§k§\nexport EDITOR=vim\n",
    ["OPENAI_KEY", "EDITOR=vim"],
    k=alnum("export", 40),
)
add(
    "environment",
    "env-output",
    """
    SHELL=/bin/bash
    HOME=/home/anna
    DB_PASSWORD=§p§
    SENTRY_AUTH_TOKEN=§t§
    LANG=de_DE.UTF-8
    PATH=/usr/local/bin:/usr/bin
    """,
    ["HOME=/home/anna", "LANG=de_DE.UTF-8", "/usr/local/bin:/usr/bin"],
    p=words_password("env"),
    t=hexes("env", 64),
)
add(
    "environment",
    "declare-x",
    'declare -x HOME="/root"\ndeclare -x MYSQL_PWD="§p§"\n',
    ['HOME="/root"', "MYSQL_PWD"],
    p=words_password("declare"),
)
add(
    "environment",
    "fish",
    "set -gx GITEA_TOKEN §t§\nset -gx EDITOR nvim\n",
    ["GITEA_TOKEN", "EDITOR nvim"],
    t=hexes("fish", 40),
)
add(
    "environment",
    "powershell",
    '$env:ARM_CLIENT_SECRET = "§t§"\n$env:ARM_TENANT = "contoso"\n',
    ["ARM_CLIENT_SECRET", "contoso"],
    t=base64url("powershell", 40),
)
add(
    "environment",
    "cmd-set",
    "set FTP_PASSWORD=§p§\r\nset TEMP=C:\\Temp\r\n",
    ["FTP_PASSWORD", "C:\\Temp"],
    p=plain_password("cmd"),
)
add(
    "environment",
    "setx",
    'setx NUGET_TOKEN "§t§" /M\n',
    ["NUGET_TOKEN", "/M"],
    t=alnum("setx", 44),
)
add(
    "environment",
    "heredoc",
    "cat > .env <<EOF\nMODE=prod\nJWT_SECRET=§s§\nEOF\n",
    ["cat > .env <<EOF", "MODE=prod"],
    s=words_password("heredoc"),
)
add(
    "environment",
    "proc-environ",
    "HOME=/root\x00API_TOKEN=§t§\x00TERM=xterm\x00",
    ["HOME=/root", "TERM=xterm"],
    t=alnum("environ", 30),
)
add(
    "environment",
    "docker-inspect",
    '"Env": [\n    "PATH=/usr/bin",\n    "MARIADB_ROOT_PASSWORD=§p§",\n    "TZ=UTC"\n]\n',
    ["PATH=/usr/bin", "TZ=UTC"],
    p=words_password("inspect"),
)
add(
    "environment",
    "printenv-one",
    "$ printenv DB_PASSWORD\n§p§\n$ exit\n",
    ["printenv DB_PASSWORD", "$ exit"],
    p=words_password("printenv"),
)
add(
    "processes",
    "ps-aux",
    """
    USER   PID %CPU COMMAND
    root   412  0.3 mysqld --datadir=/var/lib/mysql
    app   1877  1.2 java -jar app.jar --db.user=app --db.password=§p§
    app   1912  0.0 redis-server *:6379
    """,
    ["mysqld --datadir=/var/lib/mysql", "--db.user=app", "redis-server *:6379"],
    p=plain_password("ps"),
)
add(
    "processes",
    "ps-glued",
    "backup  9921  0.0 mysqldump -ubackup -p§p§ --single-transaction shop\n",
    ["-ubackup", "--single-transaction shop"],
    p=plain_password("ps/glued"),
)
add(
    "processes",
    "java-property",
    "java -Xmx2g -Djavax.net.ssl.keyStorePassword=§p§ -Dapp.mode=prod -jar a.jar\n",
    ["-Xmx2g", "-Dapp.mode=prod"],
    p=short_password("java"),
)
add(
    "processes",
    "systemd",
    '[Service]\nEnvironment="API_TOKEN=§t§" "MODE=prod"\nExecStart=/usr/bin/app\n',
    ["MODE=prod", "/usr/bin/app"],
    t=alnum("systemd", 32),
)
add(
    "history",
    "numbered",
    """
      501  cd /srv/app
      502  mysql -uroot -p'§p§' shop
      503  export GH_TOKEN=§t§
      504  ls -la
    """,
    ["cd /srv/app", "mysql -uroot", "GH_TOKEN", "ls -la"],
    p=words_password("history", "!.-+"),
    t=checked("ghp_", "history"),
)
add(
    "history",
    "zsh",
    ": 1700000000:0;docker login -u ci -p §p§\n: 1700000007:0;git status\n",
    ["docker login -u ci", "git status"],
    p=plain_password("zsh"),
)
add(
    "history",
    "set-x-trace",
    "+ cd /srv\n+ sshpass -p §p§ ssh root@192.0.2.8 reboot\n+ echo done\n",
    ["cd /srv", "root@192.0.2.8 reboot", "echo done"],
    p=plain_password("trace"),
)
add(
    "history",
    "basic-by-hand",
    "$ echo -n 'anna:§p§' | base64\n§b§\n",
    ["base64"],
    p=words_password("byhand"),
    b=encoded(f"anna:{words_password('byhand')}"),
)
