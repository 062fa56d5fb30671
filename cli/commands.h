/* SPDX-License-Identifier: Apache-2.0 */
/* The subcommands: argv[0] is the subcommand's name, the result is the program's exit code. */
#pragma once

int cmd_run(int argc, char **argv);
int cmd_up(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_id(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_join(int argc, char **argv);
int cmd_trust(int argc, char **argv);
int cmd_job(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_nodes(int argc, char **argv);
int cmd_topology(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

/* argv[0] is "bench", argv[1] the benchmark's name. */
int bench_allreduce(int argc, char **argv);
int bench_messages(int argc, char **argv);
int bench_cluster(int argc, char **argv);
