# The main job in a container:
#
#     docker build -t pareto .
#     docker run --rm --cap-add NET_ADMIN --cap-add SYS_ADMIN -v "$PWD/results:/pareto/results" pareto \
#         --model mobilenetv2 --netem 200ms-5mbit
#
# The testbed's namespaces and links need the two capabilities, and on a host with AppArmor (Debian, Ubuntu) also
# --security-opt apparmor=unconfined. With --testbed FILE, which names SSH hosts, none of this is needed.

FROM python:3.11-slim-bookworm AS tools
RUN apt-get update \
    && apt-get install -y --no-install-recommends git iproute2 mount openssh-client openssh-server sudo util-linux \
    && rm -rf /var/lib/apt/lists/*

FROM tools
WORKDIR /pareto
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip ./pareto.sh --version
ENTRYPOINT ["./pareto.sh"]
CMD ["--help"]
