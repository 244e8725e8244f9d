"""Creates the container `bucket` on the azurite whose port is given. The key is the one that all its users know."""

import base64
import datetime
import hashlib
import hmac
import sys
import urllib.request

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
headers = {"x-ms-date": date, "x-ms-version": "2021-08-06"}
resource = f"/{ACCOUNT}/{ACCOUNT}/bucket\nrestype:container"
listed = "".join(f"{name}:{value}\n" for name, value in headers.items())
text = "PUT" + "\n" * 12 + listed + resource
digest = hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()
headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
headers["Content-Length"] = "0"
url = f"http://127.0.0.1:{sys.argv[1]}/{ACCOUNT}/bucket?restype=container"
urllib.request.urlopen(urllib.request.Request(url, method="PUT", headers=headers))
