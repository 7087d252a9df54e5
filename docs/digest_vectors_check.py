#!/usr/bin/env python3
"""Recomputes docs/digest-vectors.json with Python's own json, unicodedata and hashlib.

A second implementation of hapax-c14n/1 that shares nothing with the Rust one. Without arguments it checks;
with --write it fills in `canonical` and `digest` of the accepted vectors, for adding one. With --digest it reads
vectors from standard input, one JSON object a line, and prints the digest of each, or "refused".
"""

import hashlib
import json
import pathlib
import sys
import unicodedata

VECTORS = pathlib.Path(__file__).with_name("digest-vectors.json")
PROFILE = "hapax-c14n/1"
DEPTH = 64
LARGEST = 2**53 - 1


class Refused(ValueError):
    pass


def nfc(text):
    text.encode("utf-8")  # a lone surrogate is no Unicode text
    return unicodedata.normalize("NFC", text)


def integer(text):
    if text == "-0" or not -LARGEST <= int(text) <= LARGEST:
        raise Refused("integer")
    return int(text)


def refuse(text):
    raise Refused(text)


def members(pairs):
    found = {}
    for name, value in pairs:
        name = nfc(name)
        if name in found:
            raise Refused("duplicate name")
        found[name] = value
    return found


def normalised(value, depth=0):
    if isinstance(value, (dict, list)) and depth == DEPTH:
        raise Refused("depth")
    if isinstance(value, dict):
        return {name: normalised(member, depth + 1) for name, member in value.items()}
    if isinstance(value, list):
        return [normalised(item, depth + 1) for item in value]
    return nfc(value) if isinstance(value, str) else value


def parse(text):
    return normalised(json.loads(
        text, object_pairs_hook=members, parse_int=integer, parse_float=refuse, parse_constant=refuse))


def write(value):
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return "{" + ",".join(write(name) + ":" + write(value[name]) for name in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(write, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def canonical(vector):
    request = parse(vector["request_json"])
    if isinstance(request, dict):
        for name in vector["transport_fields"]:
            request.pop(nfc(name), None)
    return write({
        "profile": PROFILE,
        "operation_version": vector["operation_version"],
        "tenant": nfc(vector["tenant"]),
        "namespace": vector["namespace"],
        "request": request,
    })


def digest(vector):
    return "sha256:" + hashlib.sha256(canonical(vector).encode("utf-8")).hexdigest()


def answer():
    for line in sys.stdin:
        try:
            print(digest(json.loads(line)))
        except (ValueError, RecursionError):
            print("refused")


def main():
    if "--digest" in sys.argv:
        return answer()
    document = json.loads(VECTORS.read_text(encoding="utf-8"))
    wrong = [] if document["profile"] == PROFILE else ["profile"]
    for vector in document["accepted"]:
        computed = {"canonical": canonical(vector), "digest": digest(vector)}
        if "--write" in sys.argv:
            vector.update(computed)
        elif any(vector[name] != value for name, value in computed.items()):
            wrong.append(vector["name"])
    for vector in document["refused"]:
        try:
            parse(vector["request_json"])
            wrong.append(vector["name"])
        except (ValueError, RecursionError):
            pass
    if "--write" in sys.argv:
        VECTORS.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    if wrong:
        sys.exit("wrong vectors: " + ", ".join(wrong))
    print(f"{len(document['accepted'])} accepted and {len(document['refused'])} refused vectors agree")


if __name__ == "__main__":
    main()
