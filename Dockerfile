# Runs `make test` in a clean Debian: docker build -t holdfast-test . && docker run --rm --privileged holdfast-test
#
# --privileged lets the tests make namespaces of their own, which most container runtimes forbid by default. Without
# it they run too, and what could not be tried is listed at the end. `-e CI=true` makes that a failure.
FROM python:3.11-slim-bookworm

# What tools/get_packages.py installs when it may, and make; its test compares the two.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends \
        bubblewrap chromium dbus-daemon faketime git gnome-keyring gnupg less libsecret-tools make nats-server nodejs npm openssh-server pass postgresql socat strace tmux zsh \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /holdfast
# The pins first: they change seldom, and what they install is kept between builds.
COPY Makefile pyproject.toml README.md LICENSE ./
COPY requirements requirements
COPY tools tools
COPY src src
RUN make for-test
COPY . .

CMD ["make", "test"]
